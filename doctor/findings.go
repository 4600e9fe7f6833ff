package doctor

import (
	"cmp"
	"slices"
)

// A Level says how bad a finding is.
type Level string

const (
	OK   Level = "ok"   // all is well, or worth knowing
	Warn Level = "warn" // it works, and somebody should look
	Fail Level = "fail" // something does not work, or will stop soon
)

// A Finding is what one check has to say about one thing.
type Finding struct {
	Name    string `json:"name"`              // one of [Names]
	Level   Level  `json:"level"`             // how bad it is
	Subject string `json:"subject,omitempty"` // the table, session or setting
	Detail  string `json:"detail"`            // what is so, since when, how much
	Remedy  string `json:"remedy,omitempty"`  // what to do next
}

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
