// Command find prints the folder of the PostgreSQL that deed would run, or in
// one sentence what to install.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/deedhq/deed/internal/pgembed"
)

func main() {
	found, err := pgembed.Find()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(filepath.Dir(found.Postgres))
}
