// Package httpclient keeps an outgoing HTTP client within a limit of its own, and within those that
// servers report: [Transport] is an http.RoundTripper.
package httpclient
