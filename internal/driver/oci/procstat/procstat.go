// Package procstat reads /proc/PID/stat, in which the second field is a name that
// the process chose and that can contain anything. It opens no file: who reads
// makes sure that what is read is of the process that is meant.
package procstat

import (
	"bytes"
	"errors"
	"strconv"
	"time"
)

// StartTime reads the 22nd field of /proc/PID/stat.
func StartTime(stat []byte) (uint64, error) {
	fields := Fields(stat)
	if len(fields) < 20 {
		return 0, errors.New("malformed stat")
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// CPUTime reads the times of /proc/PID/stat, of the process and of the
// children that it waited for.
func CPUTime(stat []byte) time.Duration {
	const tick = time.Second / 100 // USER_HZ, the same on every machine
	fields := Fields(stat)
	if len(fields) < 15 {
		return 0
	}
	var sum time.Duration
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// Fields are the fields of /proc/PID/stat from the third one, the state:
// the second one holds the program's name, which can contain anything.
func Fields(stat []byte) [][]byte {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return nil
	}
	return bytes.Fields(stat[i+1:])
}

// Lives reports whether a process, of which these are the [Fields], can
// still run. One whose first thread has ended looks like a zombie.
func Lives(fields [][]byte) bool {
	return len(fields) >= 18 && fields[0][0] != 'X' && (fields[0][0] != 'Z' || string(fields[17]) > "1")
}
