package stub_test

import (
	"log"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/stub"
)

// In staging what is for "mail" goes nowhere, and of a hundred calls one is in doubt.
func ExampleNew() {
	mail, err := stub.New(stub.Options{Fail: map[string]float64{"unknown": 0.01}})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"mail": {Provider: mail}}}
}
