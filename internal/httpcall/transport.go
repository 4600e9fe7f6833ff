package httpcall

import (
	"net"
	"net/http"
	"time"
)

// NewTransport returns connections to a service's API, of which many are to one host:
// by the proxy of the environment, and counted.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: Count((&net.Dialer{Timeout: 10 * time.Second}).DialContext), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}
