package ipaddr

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1":           "192.0.2.1/32",
		"::ffff:192.0.2.1":    "192.0.2.1/32",
		"fe80::1%eth0":        "fe80::1/128",
		"2001:db8::1":         "2001:db8::1/128",
		"10.0.0.0/8":          "10.0.0.0/8",
		"::ffff:10.0.0.0/104": "10.0.0.0/8",
		"::ffff:0:0/95":       "::ffff:0.0.0.0/95",
		"2001:db8::1/32":      "2001:db8::1/32",
		"":                    "",
		"192.0.2.1:80":        "",
		"192.0.2.1/33":        "",
		"[2001:db8::1]":       "",
		"example.com":         "",
	} {
		p, err := ParsePrefix(text)
		if want == "" {
			assert.Error(t, err, text)
			continue
		}
		assert.NoError(t, err, text)
		assert.Equal(t, want, p.String(), text)
	}
}

func TestPlain(t *testing.T) {
	assert.Equal(t, netip.MustParseAddr("192.0.2.1"), Plain(netip.MustParseAddr("::ffff:192.0.2.1")))
	assert.Equal(t, netip.MustParseAddr("fe80::1"), Plain(netip.MustParseAddr("fe80::1%eth0")))
	assert.Equal(t, netip.Addr{}, Plain(netip.Addr{}))
	assert.Equal(t, netip.Prefix{}, PlainPrefix(netip.Prefix{}))
}
