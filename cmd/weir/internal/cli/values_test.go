package cli

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
)

func TestPrefixUnmaps(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7":            "10.0.0.7/32",
		"10.1.2.3/8":          "10.0.0.0/8",
		"::ffff:10.0.0.7":     "10.0.0.7/32",
		"::ffff:10.0.0.0/104": "10.0.0.0/8",
		"2001:db8::1":         "2001:db8::1/128",
		"2001:db8::1/64":      "2001:db8::/64",
		"fe80::1%eth0":        "fe80::1/128",
	} {
		p, err := Prefix(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, p.String(), text)
	}
	_, err := Prefix("example.com")
	assert.Error(t, err)
}

func TestStatuses(t *testing.T) {
	f, err := Statuses([]string{"401", "5xx"})
	require.NoError(t, err)
	for status, want := range map[int]bool{401: true, 400: false, 500: true, 599: true, 200: false} {
		assert.Equal(t, want, f(status), status)
	}
	f, err = Statuses(nil)
	require.NoError(t, err)
	assert.Nil(t, f)
	for _, text := range []string{"", "4", "6xx", "xx", "600", "-xx", "4xxx"} {
		_, err := Statuses([]string{text})
		assert.Error(t, err, text)
	}
}

// TestEntry checks that what was meant as an address and is none is an error, since as a key it
// would match no client.
func TestEntry(t *testing.T) {
	for text, want := range map[string]httplimit.DenyEntry{
		"example.com":      {Key: "example.com"},
		"example.com:80":   {Key: "example.com:80"},
		"/a/b":             {Key: "/a/b"},
		"/users/7":         {Key: "/users/7"},
		"a/b":              {Key: "a/b"},
		"dead.beef":        {Key: "dead.beef"},
		"10":               {Key: "10"},
		"2026-11-26":       {Key: "2026-11-26"},
		"12:30":            {Key: "12:30"},
		"":                 {},
		"key:300.1.1.1":    {Key: "300.1.1.1"},
		" key:192.0.2.1 ":  {Key: "192.0.2.1"},
		"key:key:a":        {Key: "key:a"},
		" 192.0.2.1 ":      {Prefix: netip.MustParsePrefix("192.0.2.1/32")},
		"2001:db8::1:80":   {Prefix: netip.MustParsePrefix("2001:db8::1:80/128")},
		"2001:db8::1%eth0": {Prefix: netip.MustParsePrefix("2001:db8::1/128")},
	} {
		e, err := Entry(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, e, text)
	}
	for text, addr := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "192.0.2.1:80/24": "192.0.2.1", "192.0.2.1/33": "192.0.2.1",
		"192.0.2.1/255.255.255.0": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		"[2001:db8::]/32": "2001:db8::", "2001:db8::1/129": "2001:db8::1",
	} {
		_, err := Entry(text)
		assert.ErrorContains(t, err, "want an address without a port or brackets, such as "+addr+",", text)
		assert.ErrorContains(t, err, text)
	}
	for _, text := range []string{
		"300.1.1.1", "not an ip/99", "10.0.0", "10.0.0.0/8/8", "10.0.0.*", "10.0.0.1-10.0.0.9",
		"10.0.0.1, 10.0.0.2",
		"10.0.0.0/-8", "192.0.2.01", "1.2.3.4.5", "2001:db8:::1", "2001:db8::/200", "2001:db8::1::", "::1 ::2",
		"[::1", "1:2:3:4:5:6:7:8:9", "fe80:::%eth0", "a/8",
	} {
		_, err := Entry(text)
		assert.ErrorContains(t, err, "if it is a key, write key:"+text, text)
	}
}
