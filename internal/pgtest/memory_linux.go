package pgtest

import "syscall"

// memoryFolder returns a folder in memory if there is one with room for a
// suite's databases, else "". Cloning makes hundreds of files, which takes a
// disk's file system ten times as long.
func memoryFolder() string {
	const room = 4 << 30
	var fs syscall.Statfs_t
	err := syscall.Statfs("/dev/shm", &fs)
	if err != nil || uint64(fs.Bavail)*uint64(fs.Bsize) < room {
		return ""
	}
	return "/dev/shm"
}
