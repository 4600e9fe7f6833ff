package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/deedhq/deed/campaign"
)

// airport is whom the campaigns reach.
type airport struct{ code, email, name, city string }

// instance is the one that has the airports' accounts.
const instance = "airport.test"

// account is the airport's.
func (a airport) account() string { return "@" + strings.ToLower(a.code) + "@" + instance }

func (a airport) data() json.RawMessage {
	text, err := json.Marshal(map[string]string{"name": a.name, "city": a.city})
	if err != nil {
		panic(err) // strings always have a form
	}
	return text
}

// member is the airport in the audience of a channel.
func (a airport) member(channel campaign.Channel) campaign.Member {
	m := campaign.Member{Address: a.email, Data: a.data()}
	if channel == campaign.Social {
		m.Address = a.account()
	}
	return m
}

// readAirports reads the first rows of a CSV file.
func readAirports(path string, most int) ([]airport, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("%s: no airports in it", path)
	}
	columns := map[string]int{}
	for _, name := range []string{"external_id", "name", "email", "city"} {
		if columns[name] = slices.Index(rows[0], name); columns[name] < 0 {
			return nil, fmt.Errorf("%s: it has no column %s", path, name)
		}
	}
	var list []airport
	for _, row := range rows[1:min(len(rows), most+1)] {
		list = append(list, airport{code: row[columns["external_id"]], email: row[columns["email"]], name: row[columns["name"]], city: row[columns["city"]]})
	}
	return list, nil
}
