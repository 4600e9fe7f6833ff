package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// function is one and how many lines it has.
type function struct {
	name  string
	lines int
}

func functions(files []source, tests bool) (list []function) {
	for _, f := range files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && f.test == tests {
				first, last := f.lineOf(fn.Pos()), f.lineOf(fn.End())
				list = append(list, function{fmt.Sprintf("%s:%d %s", f.name, first, fn.Name.Name), last - first + 1})
			}
		}
	}
	return list
}

func lines(files []source) (code, tests int) {
	for _, f := range files {
		n := bytes.Count(f.text, []byte("\n"))
		if f.test {
			tests += n
		} else {
			code += n
		}
	}
	return code, tests
}

// sleeps counts the calls of time.Sleep in tests, but for those in functions
// that use synctest, where no time passes.
func sleeps(files []source) (n int) {
	for _, f := range files {
		for _, d := range f.ast.Decls {
			first, last := f.fset.Position(d.Pos()).Offset, f.fset.Position(d.End()).Offset
			text := f.text[first:last]
			if f.test && !bytes.Contains(text, []byte("synctest.")) {
				n += bytes.Count(text, []byte("time.Sleep("))
			}
		}
	}
	return n
}

func interfaces(files []source) (count, methods int) {
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeSpec); ok {
				if i, ok := t.Type.(*ast.InterfaceType); ok {
					count++
					methods += i.Methods.NumFields()
				}
			}
			return true
		})
	}
	return count, methods
}

// root counts what the root package exports, and its lines.
func root(pkgs []pkg) (names, methods, size int) {
	i := slices.IndexFunc(pkgs, func(p pkg) bool { return p.name == "." })
	for _, name := range pkgs[i].types.Scope().Names() {
		if ast.IsExported(name) {
			names++
		}
	}
	for _, f := range pkgs[i].files {
		if f.test {
			continue
		}
		size += bytes.Count(f.text, []byte("\n"))
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.IsExported() {
				methods++
			}
		}
	}
	return names, methods, size
}

// longFiles are those of Go and SQL with more lines than most, but for what is
// generated.
func longFiles(most int) (long []string, err error) {
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "." {
			return filepath.SkipDir
		}
		ext := filepath.Ext(path)
		if d.IsDir() || ext != ".go" && ext != ".sql" || strings.HasPrefix(d.Name(), "expected") {
			return nil
		}
		text, err := os.ReadFile(path)
		if n := bytes.Count(text, []byte("\n")); n > most {
			long = append(long, fmt.Sprintf("%s (%d)", path, n))
		}
		return err
	})
	return long, err
}

// share is how many percent of the files' lines are comments.
func share(files []source) float64 {
	comments, all := 0, 0
	for _, f := range files {
		if f.test {
			continue
		}
		for line := range strings.Lines(string(f.text)) {
			all++
			if strings.HasPrefix(strings.TrimSpace(line), "//") {
				comments++
			}
		}
	}
	return 100 * float64(comments) / float64(all)
}

// hardest is the share of each of the files in which reading is hardest.
func hardest(files []source) string {
	var list []string
	for _, f := range files {
		switch filepath.Base(f.name) {
		case "lane.go", "lanes.go", "page.go", "recorder.go", "watch.go", "feed.go", "aside.go", "queue.go", "span.go", "dive.go", "settle.go", "attempt.go", "hand.go", "source.go", "destination.go":
			list = append(list, fmt.Sprintf("%s %.0f", f.name, share([]source{f})))
		}
	}
	return strings.Join(list, ", ")
}
