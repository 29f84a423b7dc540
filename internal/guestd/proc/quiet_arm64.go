package proc

// restorerFlag is none: the kernel brings what ends a handler.
const restorerFlag = 0
