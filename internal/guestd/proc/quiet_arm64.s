#include "textflag.h"

// The kernel calls it on the signal stack; it returns to the kernel's restorer.
TEXT handler<>(SB),NOSPLIT|NOFRAME,$0
	RET

// func quietHandler() uintptr
TEXT ·quietHandler(SB),NOSPLIT,$0-8
	MOVD	$handler<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET

// func quietRestorer() uintptr
TEXT ·quietRestorer(SB),NOSPLIT,$0-8
	MOVD	ZR, ret+0(FP)
	RET
