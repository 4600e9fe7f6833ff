package main

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// terminalWidth is how many characters fit a line of w; 0 if w is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := unescaped(w).(*os.File)
	if !ok {
		return 0
	}
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0
	}
	if size.columns == 0 {
		return 80 // a terminal that does not know
	}
	return int(size.columns)
}
