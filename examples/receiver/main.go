// The receiver takes deed's webhooks, checks their signatures and prints them:
//
//	HOOK_SECRET=whsec_… receiver [ADDRESS]
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/deedhq/deed/sink/webhook"
)

func main() {
	address := "127.0.0.1:9000"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	server := &http.Server{Addr: address, Handler: receive(os.Getenv("HOOK_SECRET")), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// receive answers 204 only once the message has been handled: until then deed
// sends it again. What comes twice has the same webhook-id.
func receive(secret string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 10<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if err := webhook.Verify([]string{secret}, r.Header, body, 0, time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Println("received", r.Header.Get("webhook-id"), string(body))
		w.WriteHeader(http.StatusNoContent)
	}
}
