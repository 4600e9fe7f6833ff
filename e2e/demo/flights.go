package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

// flight is what the demo needs to know of a line.
type flight struct {
	ID          string `json:"id"`
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
	line        []byte
}

func (f flight) key() string {
	if f.Origin == "" || f.Destination == "" {
		return f.ID
	}
	return f.Origin + "-" + f.Destination
}

// fingerprint tells whether a body is the one that was published.
func fingerprint(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// readFlights reads the first lines of a file. The report counts by id, so two
// lines may not share one.
func readFlights(path string, most int) ([]flight, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var list []flight
	lines := map[string]int{}
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, 1<<20)
	for n := 1; len(list) < most && scan.Scan(); n++ {
		f := flight{line: bytes.Clone(scan.Bytes())}
		if err := json.Unmarshal(f.line, &f); err != nil || f.ID == "" {
			return nil, fmt.Errorf("%s:%d: not a JSON object with an id", path, n)
		}
		if first := lines[f.ID]; first > 0 {
			return nil, fmt.Errorf("%s:%d: the id %q is on line %d too", path, n, f.ID, first)
		}
		lines[f.ID] = n
		list = append(list, f)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no flights in it", path)
	}
	return list, nil
}
