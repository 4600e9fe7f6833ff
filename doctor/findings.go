package doctor

import (
	"cmp"
	"slices"
)

// Findings are the result of an examination, the worst first.
type Findings []Finding

func (l Level) rank() int { return slices.Index([]Level{Fail, Warn, OK}, l) }

// sort puts the worst first, and keeps the order of the checks within a level.
func (fs Findings) sort() {
	slices.SortStableFunc(fs, func(a, b Finding) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
}

// Worst returns the worst level; [OK] if there is no finding.
func (fs Findings) Worst() Level {
	worst := OK
	for _, f := range fs {
		if f.Level.rank() < worst.rank() {
			worst = f.Level
		}
	}
	return worst
}

// Trouble returns the findings that are not [OK].
func (fs Findings) Trouble() Findings {
	var trouble Findings
	for _, f := range fs {
		if f.Level != OK {
			trouble = append(trouble, f)
		}
	}
	return trouble
}

// Count is how many findings there are of a name and a level.
type Count struct {
	Name  string
	Level Level
	N     int
}

// Counts counts the findings: a row for each of [Names] and each level, zeros
// included, so that a gauge made of it goes back when the trouble is over.
func (fs Findings) Counts() []Count {
	type key struct {
		name  string
		level Level
	}
	n := map[key]int{}
	for _, f := range fs {
		n[key{f.Name, f.Level}]++
	}
	var counts []Count
	for _, name := range Names() {
		for _, level := range []Level{OK, Warn, Fail} {
			counts = append(counts, Count{name, level, n[key{name, level}]})
		}
	}
	return counts
}
