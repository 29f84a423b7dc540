package kernel

// Variable is the change of an environment variable; nil: it is not set.
type Variable struct {
	Old, New *string
}
