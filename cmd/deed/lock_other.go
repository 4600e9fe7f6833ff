//go:build !unix

package main

import (
	"context"
	"os"
)

// lockFile: there is no such lock here.
func lockFile(context.Context, *os.File) (locked bool, err error) { return false, nil }
func unlockFile(*os.File) error                                   { return nil }
