package proc

// restorerFlag is SA_RESTORER of the kernel's asm/signal.h: on amd64 a handler must
// bring what ends it.
const restorerFlag = 0x04000000
