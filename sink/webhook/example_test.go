package webhook_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/webhook"
)

// Each message of a topic is posted to an endpoint.
func ExampleNew() {
	hook, err := webhook.New(webhook.Options{URL: "https://shop.example/hooks/orders", Secret: os.Getenv("HOOK_SECRET")})
	if err != nil {
		log.Fatal(err)
	}
	defer hook.Close()
	_ = deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Name: "shop", Sink: hook}}}
}

// The receiver's side: check the signature, then drop repeats by the id.
func ExampleVerify() {
	secrets := []string{os.Getenv("HOOK_SECRET")} // two of them while one is being replaced
	http.HandleFunc("POST /hooks/orders", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return
		}
		if err := webhook.Verify(secrets, r.Header, body, 0, time.Now()); err != nil {
			http.Error(w, "bad signature", http.StatusUnauthorized)
			return
		}
		// Store body under the id in a transaction that skips ids it has.
		log.Print(r.Header.Get("webhook-id"))
	})
}

// A test of a receiver signs as the sink does.
func ExampleSigner_Sign() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	signer, err := webhook.NewSigner(secret, "")
	if err != nil {
		log.Fatal(err)
	}
	now := time.Unix(1614265330, 0)
	h := http.Header{}
	signer.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", now, []byte(`{"test": 2432232314}`))

	fmt.Println(strings.SplitN(h.Get("webhook-signature"), ",", 2)[0])
	fmt.Println(webhook.Verify([]string{secret}, h, []byte(`{"test": 2432232314}`), 0, now))
	// Output:
	// v1
	// <nil>
}
