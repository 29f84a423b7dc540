#include "textflag.h"

// The kernel calls it with the signal in R0, its struct siginfo in R1 and the context in R2.
TEXT faultHandler<>(SB),NOSPLIT|NOFRAME,$0
	MOVW	8(R1), R3 // si_code
	CMPW	$0, R3
	BLE	sent
	MOVD	·goFault(SB), R3
	JMP	(R3)
sent:
	RET

// func faultHandler() uintptr
TEXT ·faultHandler(SB),NOSPLIT,$0-8
	MOVD	$faultHandler<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET
