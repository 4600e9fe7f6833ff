//go:build !deedcrash

// Package crash names the points at which a test may kill the process.
//
// In a normal build a point is nothing. Built with the tag deedcrash, the
// process kills itself with SIGKILL at the point that its environment names.
package crash

// Point marks a place between two steps that must survive a crash.
func Point(string) {}
