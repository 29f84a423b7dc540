// Command cubby-init is the agent inside a sandbox: see internal/guestd.
package main

func main() {}
