package main

import (
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
)

// circles are the sets of files of the package that use each other, directly or
// by way of others of the set: what is declared in one, at the level of the
// package or as a method, is named in another.
func (p pkg) circles() [][]string {
	uses := map[string]map[string]bool{}
	for _, f := range p.files {
		if f.test {
			continue
		}
		uses[f.name] = map[string]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if of := p.info.Uses[id]; of != nil && p.declares(of) {
					uses[f.name][f.fset.Position(of.Pos()).Filename] = true
				}
			}
			return true
		})
	}
	var found [][]string
	seen := map[string]bool{}
	for file := range uses {
		if seen[file] {
			continue
		}
		var circle []string
		for other := range reach(uses, file) {
			if reach(uses, other)[file] {
				seen[other] = true
				circle = append(circle, filepath.Base(other))
			}
		}
		slices.Sort(circle)
		found = append(found, circle)
	}
	slices.SortFunc(found, func(a, b []string) int { return slices.Compare(a, b) })
	return found
}

// declares reports whether it is one of the package's own functions, methods,
// types, variables or constants.
func (p pkg) declares(of types.Object) bool {
	if of.Pkg() != p.types {
		return false
	}
	if fn, ok := of.(*types.Func); ok && fn.Signature().Recv() != nil {
		return true
	}
	return of.Parent() == p.types.Scope()
}

// reach is what can be come to from a file by one step or more.
func reach(uses map[string]map[string]bool, from string) map[string]bool {
	found := map[string]bool{}
	todo := []string{from}
	for len(todo) > 0 {
		file := todo[0]
		todo = todo[1:]
		for next := range uses[file] {
			if !found[next] {
				found[next] = true
				todo = append(todo, next)
			}
		}
	}
	return found
}
