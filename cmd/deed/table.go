package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/text/width"
)

// usualWidth is how wide tables are where neither a terminal nor COLUMNS says otherwise.
const usualWidth = 100

// spare are the columns without which a row can still be told from others, by their headers:
// where a line has no place for all, they are left out, the first first.
var spare = []string{
	"DOOR", "BACKFILLED", "MESSAGE ID", "LANES", "LOCALE", "ZONE", "BYTES", "WHO", "BY", "BACKOFF", "LEASE", "VERSION", "PROJECT", "LOST CLAIMS",
	"ATTEMPTS", "MAX ATTEMPTS", "ASKED", "DELIVERIES", "CHANNEL", "ENVIRONMENT", "TYPE", "FAILURES", "TENANT", "TIMES", "AFFECTED",
	"REPEATED", "PROVIDER", "ERROR", "MEMBERS",
}

const anID = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`

// fixed are cells that are never cut: ids by which other commands know a row, with or without what
// they are of, times and numbers.
var fixed = regexp.MustCompile(`^(|-|[0-9]+|([a-z]+ )?` + anID + `( ` + anID + `)*|\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ)$`)

// severalIDs are cells that may stand one id a line, where they are too long for one.
var severalIDs = regexp.MustCompile(`^` + anID + `( ` + anID + `)+$`)

// table prints rows under a header, for people: no line is longer than the terminal's, or
// usualWidth; with --wide all is there.
func table(w io.Writer, header []string, rows [][]string) error {
	_, err := tableOf(w, widthOf(w), header, rows)
	return err
}

// printRows prints a list: as table, and says beside it what was left out.
func printRows(cmd *cobra.Command, header []string, rows [][]string) error {
	told, err := list(cmd.OutOrStdout(), header, rows)
	if told != "" {
		fmt.Fprint(cmd.ErrOrStderr(), indented(terminalWidth(cmd.ErrOrStderr()), "note: ", told))
	}
	return err
}

// list prints a table whose times are ages, which are found in it at a glance. told says
// what was left out, if anything was.
func list(w io.Writer, header []string, rows [][]string) (told string, err error) {
	width := widthOf(w)
	if width > 0 {
		now := time.Now()
		for i, row := range rows {
			rows[i] = slices.Clone(row)
			for j, cell := range row {
				rows[i][j] = age(cell, now)
			}
		}
	}
	return tableOf(w, width, header, rows)
}

// widthOf is how long lines of w may be; 0: without bounds.
func widthOf(w io.Writer) int {
	columns := 0
	if e, ok := w.(*escaper); ok {
		if e.wide {
			return 0
		}
		columns = e.columns
	}
	return cmp.Or(terminalWidth(w), columns, usualWidth)
}

// age is how long ago a time was, if the cell has one: 3d, or in 3d.
func age(cell string, now time.Time) string {
	t, err := time.Parse("2006-01-02 15:04:05Z", cell)
	if err != nil {
		return cell
	}
	d, ahead := now.Sub(t), ""
	if d < 0 {
		d, ahead = -d, "in "
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%s%ds", ahead, d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%s%dm", ahead, d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%s%dh", ahead, d/time.Hour)
	}
	return fmt.Sprintf("%s%dd", ahead, d/(24*time.Hour))
}

const (
	columnGap   = 2
	leastColumn = 8  // a column is not cut below that
	easyColumn  = 14 // nor, while there are columns to spare, below that
	longStatus  = 15 // a status that is no longer is never cut
)

func tableOf(w io.Writer, width int, header []string, rows [][]string) (told string, err error) {
	columns, cuttable := measure(header, rows)
	left, cut := []string(nil), false
	if width > 0 {
		keep, out, fits := fitting(width, header, columns, cuttable)
		if stacked := stackIDs(rows); !fits && len(stacked) > len(rows) {
			rows = stacked
			columns, cuttable = measure(header, rows)
			keep, out, _ = fitting(width, header, columns, cuttable)
		}
		left = out
		header, columns, cuttable = picked(header, keep), picked(columns, keep), picked(cuttable, keep)
		for i, row := range rows {
			rows[i] = picked(row, keep)
		}
		cut = narrow(width, columns, cuttable)
	}
	var b strings.Builder
	for _, row := range append([][]string{header}, rows...) {
		line := ""
		for i, cell := range row {
			cell = clip(cell, columns[i])
			line += cell + strings.Repeat(" ", columns[i]-cells(cell)+columnGap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	switch {
	case left != nil:
		told = "--wide shows all, " + strings.Join(left, ", ") + " too, and so does --json"
	case cut:
		told = "--wide shows all of it, and so does --json"
	}
	_, err = io.WriteString(w, b.String())
	return told, err
}

// stackIDs are the rows with cells of several ids one id a line.
func stackIDs(rows [][]string) (stacked [][]string) {
	for _, row := range rows {
		lines := [][]string{slices.Clone(row)}
		for i, cell := range row {
			if !severalIDs.MatchString(cell) {
				continue
			}
			for n, id := range strings.Fields(cell) {
				if n == len(lines) {
					lines = append(lines, make([]string, len(row)))
				}
				lines[n][i] = id
			}
		}
		stacked = append(stacked, lines...)
	}
	return stacked
}

// cells is how many places of a terminal's line text takes: characters of East Asian scripts, and
// most pictures, take two, and what stands above or below another none.
func cells(text string) (n int) {
	for _, r := range text {
		switch kind := width.LookupRune(r).Kind(); {
		case unicode.In(r, unicode.Mn, unicode.Me):
		case kind == width.EastAsianWide, kind == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}

// measure says how wide columns are, and which may be cut.
func measure(header []string, rows [][]string) (columns []int, cuttable []bool) {
	columns, cuttable = make([]int, len(header)), make([]bool, len(header))
	for i, name := range header {
		columns[i] = cells(name)
	}
	for _, row := range rows {
		for i, cell := range row {
			columns[i] = max(columns[i], cells(cell))
			cuttable[i] = cuttable[i] || cells(cell) > leastColumn && !fixed.MatchString(cell)
		}
	}
	if i := slices.Index(header, "STATUS"); i >= 0 && columns[i] <= longStatus {
		cuttable[i] = false
	}
	return columns, cuttable
}

// fitting are the columns for which there is place, the names of those that are left out, and
// whether the others fit.
func fitting(width int, header []string, columns []int, cuttable []bool) (keep []int, left []string, fits bool) {
	order := spare
	if slices.Contains(header, "SEQ") { // which says as much as the id
		order = append([]string{"ID"}, spare...)
	}
	need := -columnGap
	for i, n := range columns {
		keep = append(keep, i)
		if need += n + columnGap; cuttable[i] && n > easyColumn {
			need += easyColumn - n
		}
	}
	for _, name := range order {
		at := slices.Index(header, name)
		if need <= width {
			break
		}
		if at <= 0 {
			continue
		}
		if need -= columns[at] + columnGap; cuttable[at] && columns[at] > easyColumn {
			need += columns[at] - easyColumn
		}
		keep = slices.DeleteFunc(keep, func(i int) bool { return i == at })
		left = append(left, name)
	}
	return keep, left, need <= width
}

// narrow takes from the widest columns that may be cut until they fit.
func narrow(width int, columns []int, cuttable []bool) (cut bool) {
	total := columnGap * (len(columns) - 1)
	for _, n := range columns {
		total += n
	}
	for total > width {
		give := -1
		for i, n := range columns {
			if cuttable[i] && n > leastColumn && (give < 0 || n >= columns[give]) {
				give = i
			}
		}
		if give < 0 {
			break
		}
		columns[give]--
		total--
		cut = true
	}
	return cut
}

// picked are those of a list that stand at these places.
func picked[T any](list []T, at []int) []T {
	out := make([]T, len(at))
	for i, n := range at {
		out[i] = list[n]
	}
	return out
}
