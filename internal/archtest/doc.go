// Package archtest holds tests about the repository itself: which package may
// import which, and the few habits that a compiler does not check. It has no
// code; a rule that is in the way is changed here, in the same commit as
// ARCHITECTURE.md, and never worked around.
package archtest
