package httpcall

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// NewTransport returns connections to the API of a service that knows a repeat by its
// key, of which many are to one host: by the proxy of the environment, and counted.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: Count((&net.Dialer{Timeout: 10 * time.Second}).DialContext), ForceAttemptHTTP2: true, HTTP2: Pings(), MaxIdleConnsPerHost: 100, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// NewSingleUse returns connections to the API of a service that takes a repeat for
// another request, as [NewTransport] does, but each for one request: one that was closed
// while it was idle cannot be told from one that took it. By HTTP/1.1, of which a
// connection has one request at a time in any case; a session of TLS is resumed, which
// costs neither side a signature.
func NewSingleUse() *http.Transport {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: Count((&net.Dialer{Timeout: 10 * time.Second}).DialContext), DisableKeepAlives: true,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
}

// Pings has a connection of HTTP/2 closed that leads nowhere: of which nothing comes for
// as long as a request waits, nor the answer to a ping. Without them all requests to its
// host go over it until the kernel gives it up, a quarter of an hour later.
func Pings() *http.HTTP2Config {
	return &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second}
}
