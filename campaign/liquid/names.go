package liquid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// known is what a template may ask for.
type known struct {
	list     []string
	whole    map[string]bool // the names that were given
	prefixes map[string]bool // of them, and they themselves
}

// pathSeparator is in no name: a field's name may have a point in it.
const pathSeparator = "\x00"

func newKnown(list []string) (known, error) {
	k := known{whole: map[string]bool{}, prefixes: map[string]bool{}}
	for _, name := range list {
		parts := strings.Split(name, ".")
		if slices.Contains(parts, "") || nameLength(parts[0]) != len(parts[0]) || !isAlpha(parts[0][0]) || isWord(parts[0]) {
			return k, fmt.Errorf("the name %q cannot be asked for in a template: names are as contact.first_name", name)
		}
		path := strings.Join(parts, pathSeparator)
		k.whole[path] = true
		for i := range parts {
			k.prefixes[strings.Join(parts[:i+1], pathSeparator)] = true
		}
		k.list = append(k.list, name)
	}
	slices.Sort(k.list)
	k.list = slices.Compact(k.list)
	return k, nil
}

func isWord(name string) bool {
	switch name {
	case "and", "or", "contains", "in", "true", "false", "nil", "forloop", "reversed":
		return true
	}
	return false
}

// allows reports whether a path is within a name that was given, or leads to one.
func (k known) allows(path []string) bool {
	if k.prefixes[strings.Join(path, pathSeparator)] {
		return true
	}
	for i := range path {
		if k.whole[strings.Join(path[:i+1], pathSeparator)] {
			return true
		}
	}
	return false
}

// object reports whether a path leads to names and is none.
func (k known) object(path []string) bool {
	at := strings.Join(path, pathSeparator)
	return k.prefixes[at] && !k.whole[at]
}

func (k known) root(name string) bool { return k.prefixes[name] }

// undefined says that a path is none, and which there are.
func (k known) undefined(path []string) error {
	name := strings.Join(path, ".")
	if len(k.list) == 0 {
		return fmt.Errorf("undefined name %s: this template has no data", name)
	}
	list := strings.Join(k.list[:min(len(k.list), 20)], ", ")
	if len(k.list) > 20 {
		list += " and others"
	}
	return fmt.Errorf("undefined name %s: there is %s", name, list)
}

// local is a name that the template itself makes.
type local struct {
	by   string // assign, capture or for
	line int
}

var errReserved = errors.New("names of your own begin with a letter and are not and, or, contains, in, true, false, nil, forloop or reversed")

// declare makes a name of the template's own. A captured text is HTML already, so a name
// is captured everywhere or nowhere.
func (c *checker) declare(name, by string) error {
	if nameLength(name) != len(name) || name == "" || !isAlpha(name[0]) || isWord(name) {
		return errReserved
	}
	if c.given.root(name) {
		return fmt.Errorf("%s is given: choose another name", name)
	}
	if was, ok := c.locals[name]; ok && (was.by == "capture") != (by == "capture") {
		return fmt.Errorf("%s is made by %s in line %d: choose another name", name, was.by, was.line)
	}
	c.locals[name] = local{by, c.line}
	return nil
}
