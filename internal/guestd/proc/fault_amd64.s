#include "textflag.h"

// The kernel calls it with the signal in DI, its struct siginfo in SI and the context in DX.
TEXT faultHandler<>(SB),NOSPLIT|NOFRAME,$0
	CMPL	8(SI), $0 // si_code
	JLE	sent
	MOVQ	·goFault(SB), AX
	JMP	AX
sent:
	RET

// func faultHandler() uintptr
TEXT ·faultHandler(SB),NOSPLIT,$0-8
	LEAQ	faultHandler<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
