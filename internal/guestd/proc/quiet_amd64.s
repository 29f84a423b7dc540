#include "textflag.h"

// The kernel calls it on the signal stack; it returns to the restorer.
TEXT handler<>(SB),NOSPLIT|NOFRAME,$0
	RET

// rt_sigreturn, which does not return.
TEXT restorer<>(SB),NOSPLIT|NOFRAME,$0
	MOVQ	$15, AX
	SYSCALL
	INT	$3

// func quietHandler() uintptr
TEXT ·quietHandler(SB),NOSPLIT,$0-8
	LEAQ	handler<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET

// func quietRestorer() uintptr
TEXT ·quietRestorer(SB),NOSPLIT,$0-8
	LEAQ	restorer<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
