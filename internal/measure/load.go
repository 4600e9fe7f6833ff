package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// source is a file of Go.
type source struct {
	name string // within the repository
	test bool
	text []byte
	ast  *ast.File
	fset *token.FileSet
}

// lineOf is the line of a position.
func (s source) lineOf(pos token.Pos) int { return s.fset.Position(pos).Line }

// pkg is a package of the module, with its tests.
type pkg struct {
	name  string // its folder; "." is the root
	files []source
	info  *types.Info
	types *types.Package
}

// load reads and checks every package of the module.
func load() ([]pkg, error) {
	list := exec.Command("go", "list", "-deps", "-export", "-json=Dir,ImportPath,Export,GoFiles,TestGoFiles,XTestGoFiles,Standard,Module", "./...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	type listed struct {
		Dir, ImportPath, Export            string
		GoFiles, TestGoFiles, XTestGoFiles []string
		Standard                           bool
		Module                             *struct{ Main bool }
	}
	var ours []listed
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[l.ImportPath] = l.Export
		if l.Module != nil && l.Module.Main {
			ours = append(ours, l)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var pkgs []pkg
	for _, l := range ours {
		p := pkg{}
		if p.name, err = filepath.Rel(here, l.Dir); err != nil {
			return nil, err
		}
		var checked []*ast.File
		for _, name := range slices.Concat(l.GoFiles, l.TestGoFiles, l.XTestGoFiles) {
			s := source{name: filepath.Join(p.name, name), test: strings.HasSuffix(name, "_test.go"), fset: fset}
			if s.text, err = os.ReadFile(filepath.Join(l.Dir, name)); err != nil {
				return nil, err
			}
			if s.ast, err = parser.ParseFile(fset, s.name, s.text, parser.ParseComments); err != nil {
				return nil, err
			}
			if !s.test {
				checked = append(checked, s.ast)
			}
			p.files = append(p.files, s)
		}
		p.info = &types.Info{Uses: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: compiled}
		if p.types, err = config.Check(l.ImportPath, fset, checked, p.info); err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}
