// Command measure prints figures of the tree's shape: how long functions and
// files are, how much is commented where it is hard, what the root exports, and
// which files of a package lie in one circle. It is started in the repository's
// root; docs/design.md says what the figures should be.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run() error {
	pkgs, err := load()
	if err != nil {
		return err
	}
	var all []source
	for _, p := range pkgs {
		all = append(all, p.files...)
	}
	code := functions(all, false)
	slices.SortFunc(code, func(a, b function) int { return a.lines - b.lines })
	longest := code[len(code)-1]
	fmt.Printf("functions            %d; lines p50 %d, p95 %d, p99 %d, max %d (%s)\n",
		len(code), at(code, 50), at(code, 95), at(code, 99), longest.lines, longest.name)

	goLines, testLines := lines(all)
	fmt.Printf("test : code          %d : %d = %.2f\n", testLines, goLines, float64(testLines)/float64(goLines))
	sleeps := sleeps(all)
	fmt.Printf("real sleeps in tests %d = %.2f per 1,000 lines\n", sleeps, 1000*float64(sleeps)/float64(testLines))

	interfaces, methods := interfaces(all)
	fmt.Printf("interfaces           %d; %.2f methods in the mean\n", interfaces, float64(methods)/float64(interfaces))
	names, exported, size := root(pkgs)
	fmt.Printf("root                 %d exported names, %d exported methods, %d lines\n", names, exported, size)

	long, err := longFiles(600)
	if err != nil {
		return err
	}
	fmt.Printf("files over 600 lines %s\n", orNone(long))
	fmt.Printf("comments             %.1f %% of all lines; %s\n", share(all), hardest(all))
	fmt.Println("circles of more than three files:")
	found := false
	for _, p := range pkgs {
		for _, circle := range p.circles() {
			if len(circle) > 3 {
				found = true
				fmt.Printf("  %-18s %d: %s\n", p.name, len(circle), strings.Join(circle, " "))
			}
		}
	}
	if !found {
		fmt.Println("  none")
	}
	return nil
}

func at(sorted []function, percent int) int { return sorted[(len(sorted)-1)*percent/100].lines }

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
