package plan_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/deedhq/deed/run/plan"
)

// A plan is read and checked; what its expressions come to is computed step by step.
func ExampleParse() {
	p, err := plan.Parse("ship.yaml", []byte(`
plan: ship
version: "1"
steps:
  charge: {kind: go, handler: charge, with: {order: "${input.order}"}}
  mail: {kind: deliver, after: [charge], when: steps.charge.output.amount > 0, channel: email, provider: mail, to: "${input.email}", payload: {subject: Paid}}
`))
	if err != nil {
		log.Fatal(err)
	}
	data := plan.Data{
		Input: json.RawMessage(`{"order": "o-1", "email": "ann@example.com"}`),
		Steps: map[string]plan.Result{"charge": {Status: "SUCCESS", Output: json.RawMessage(`{"amount": 12}`)}},
	}
	holds, err := p.Step("mail").Holds(p, data)
	if err != nil {
		log.Fatal(err)
	}
	to, err := p.Step("mail").Resolve(p, "to", data)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(holds, string(to))
	// Output: true "ann@example.com"
}
