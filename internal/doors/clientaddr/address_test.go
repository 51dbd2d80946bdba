package clientaddr

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

func TestIsPrivate(t *testing.T) {
	for text, want := range map[string]bool{
		"9.255.255.255": false, "10.0.0.0": true, "10.255.255.255": true, "11.0.0.0": false,
		"100.63.255.255": false, "100.64.0.0": true, "100.127.255.255": true, "100.128.0.0": false,
		"169.253.255.255": false, "169.254.0.0": true, "169.254.255.255": true, "169.255.0.0": false,
		"172.15.255.255": false, "172.16.0.0": true, "172.31.255.255": true, "172.32.0.0": false,
		"192.167.255.255": false, "192.168.0.0": true, "192.168.255.255": true, "192.169.0.0": false,
		"126.255.255.255": false, "127.0.0.1": true, "127.255.255.255": true, "128.0.0.0": false,
		"203.0.113.7": false, "224.0.0.1": false, "0.0.0.0": false,
		"fbff::1": false, "fc00::": true, "fdff::1": true, "fe7f::1": false, "fe80::1": true,
		"fe80::1%eth0": true, "febf::1": true, "fec0::1": false, "::1": true, "::2": false, "2001:db8::1": false,
		"::ffff:10.0.0.1": true, "::ffff:100.64.0.1": true, "::ffff:169.254.0.1": true,
		"::ffff:127.0.0.1": true, "::ffff:203.0.113.7": false,
	} {
		assert.Equal(t, want, IsPrivate(netip.MustParseAddr(text)), text)
	}
	assert.False(t, IsPrivate(netip.Addr{}))
}
