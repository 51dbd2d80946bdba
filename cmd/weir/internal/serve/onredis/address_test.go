package onredis

import (
	"crypto/x509"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"redis://":                                  "localhost:6379",
		"redis://:6380":                             "localhost:6380",
		"redis://h":                                 "h:6379",
		"redis://[::1]:1/3":                         "[::1]:1 db=3",
		"redis://user:secret@h/3":                   "h:6379 user:secret db=3",
		"redis://:a,b@@h":                           "h:6379 :a,b@",
		"rediss://h?db=2&pool_size=7":               "h:6379 db=2 pool=7 tls=h",
		"unix:///run/redis.sock?db=1":               "/run/redis.sock db=1",
		"redis+sentinel://a/m":                      "a:26379 master=m",
		"redis+sentinel://a:1,[::1],b/my%20m/4":     "a:1,[::1]:26379,b:26379 db=4 master=my m",
		"redis+sentinel://u:p%2Fw@a,b/m?db=4":       "a:26379,b:26379 u:p/w db=4 master=m",
		"redis+sentinel://a/m?sentinel_username=s":  "a:26379 master=m sentinel=s",
		"rediss+sentinel://a,b/m?skip_verify=true":  "a:26379,b:26379 master=m tls= unverified",
		"redis+cluster://a":                         "a:6379 cluster",
		"redis+cluster://:pw@a:7000, b:7001/":       "a:7000,b:7001 :pw cluster",
		"rediss+cluster://a,b/?pool_size=9&db=0":    "a:6379,b:6379 pool=9 tls= cluster",
		"redis+sentinel://:secret@a/m?pool_size=11": "a:26379 :secret pool=11 master=m",
	} {
		a, err := parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, describe(a), text)
		s, err := Open(Config{URL: text, Prefix: "p:"}, slog.New(slog.DiscardHandler))
		require.NoError(t, err, "redislimit accepts the settings")
		assert.NoError(t, s.Close())
	}
}

// describe returns what is not the default.
func describe(a *address) string {
	o := a.options
	text := o.Addr
	if a.nodes != nil {
		text = strings.Join(a.nodes, ",")
	}
	say := func(when bool, more string) {
		if when {
			text += " " + more
		}
	}
	say(o.Username+o.Password != "", o.Username+":"+o.Password)
	say(o.DB != 0, "db="+string(rune('0'+o.DB)))
	say(o.PoolSize == 7, "pool=7")
	say(o.PoolSize == 9, "pool=9")
	say(o.PoolSize == 11, "pool=11")
	say(a.master != "", "master="+a.master)
	say(a.sentinelUser != "", "sentinel="+a.sentinelUser)
	if o.TLSConfig != nil {
		say(true, "tls="+o.TLSConfig.ServerName)
		say(o.TLSConfig.InsecureSkipVerify, "unverified")
	}
	say(a.cluster, "cluster")
	return text
}

// The message of a bad URL says what is wrong with it, and never a password, wherever that stands.
func TestBadAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:6379":                      "must be redis://, redis+sentinel:// or redis+cluster://",
		"http://user:secret@h":                "must be redis://",
		"redis+ring://h":                      "must be redis://",
		"sentinel://h/m":                      "must be redis://",
		"unix://":                             "must be unix:///path",
		"redis://h:secret":                    `needs a port from 1 to 65535 after the host "h"`,
		"redis://h:0":                         `needs a port from 1 to 65535 after the host "h"`,
		"redis://user:secret@h:x":             `needs a port from 1 to 65535 after the host "h"`,
		"redis://a,b":                         "names several hosts: write redis+sentinel://HOST,HOST/MASTER",
		"redis://user:secret@h/x":             `is wrong: invalid database number: "x"`,
		"redis://user:secret@h/1/2":           "is wrong: invalid URL path: /1/2",
		"redis://user:secret@h?pool=1":        "is wrong: unexpected option: pool",
		"redis://h?password=secret":           "is wrong: unexpected option: password",
		"redis://user:sec/ret@h":              "has a /, ? or # before an @",
		"redis+sentinel://user:se?cret@h/m":   "has a /, ? or # before an @",
		"redis://user:%secret@h":              "has a user or password with a character that must be",
		"redis+sentinel://h:26379":            "names no master",
		"redis+sentinel://user:secret@h/":     "names no master",
		"redis+sentinel://h//2":               "names no master",
		"redis+sentinel:///m":                 "needs HOST or HOST:PORT as its host number 1",
		"redis+sentinel://user:secret@a,,b/m": "needs HOST or HOST:PORT as its host number 2",
		"redis+sentinel://a,::1/m":            "needs HOST or HOST:PORT as its host number 2, an IPv6 address in",
		"redis+sentinel://a:secret/m":         `needs a port from 1 to 65535 after the host "a"`,
		"redis+sentinel://a/m/x":              `is wrong: invalid database number: "x"`,

		"redis+sentinel://a/m?sentinel_password=secret": "is wrong: unexpected option: sentinel_password",
		"redis+sentinel://a/m?x=%zz":                    "has a parameter that is no NAME=VALUE",
		"redis+cluster://":                              "needs HOST or HOST:PORT as its host number 1",
		"redis+cluster://user:secret@a,b/3":             `has the path "/3": a Cluster has no databases`,
		"redis+cluster://a?db=3":                        "has the database 3: a Cluster has none",
	} {
		cfg := Config{URL: text}
		err := cfg.Check()
		flag := (*cli.FlagError)(nil)
		require.ErrorAs(t, err, &flag, text)
		assert.Equal(t, []string{"redis"}, flag.Flags)
		assert.ErrorContains(t, err, "--redis "+want, text)
		for _, part := range []string{"secret", "sec/", "ret@", "cret", "se?"} {
			assert.NotContains(t, err.Error(), part, text)
		}
		_, err = Open(cfg, slog.New(slog.DiscardHandler))
		assert.Error(t, err, text)
	}
}

// A client has what redislimit needs, the user's settings, and the password that is not in the URL.
func TestClients(t *testing.T) {
	for _, text := range []string{"redis://user:old@h", "unix://user:old@/s"} {
		cfg := Config{URL: text, Password: "new"}
		a, err := cfg.address()
		require.NoError(t, err)
		assert.Equal(t, []string{"user", "new"}, []string{a.options.Username, a.options.Password})
	}
	cfg := Config{URL: "redis+cluster://user:old@a,b?pool_size=3", Password: "new"}
	a, err := cfg.address()
	require.NoError(t, err)
	cluster := a.client("").(*redis.ClusterClient)
	defer cluster.Close()
	o := cluster.Options()
	assert.Equal(t, []any{[]string{"a:6379", "b:6379"}, "user", "new", 3, -1, 1, true},
		[]any{o.Addrs, o.Username, o.Password, o.PoolSize, o.MaxRetries, o.DialerRetries,
			o.ContextTimeoutEnabled})
	cfg.URL = "redis+sentinel://user:old@a,b/m/5?pool_size=3"
	a, err = cfg.address()
	require.NoError(t, err)
	failover := a.client("").(*redis.Client)
	defer failover.Close()
	f := failover.Options()
	assert.Equal(t, []any{"user", "new", 5, 3, 0, 1, true},
		[]any{f.Username, f.Password, f.DB, f.PoolSize, f.MaxRetries, f.DialerRetries,
			f.ContextTimeoutEnabled})
}

// Over TLS each node has a certificate of its own host, and not of the first one.
func TestEachNodesCertificate(t *testing.T) {
	server := httptest.NewTLSServer(nil) // whose certificate is for 127.0.0.1 and example.com
	defer server.Close()
	authority := x509.NewCertPool()
	authority.AddCert(server.Certificate())
	addr := server.Listener.Addr().String()
	for text, trusted := range map[string]bool{
		"rediss+cluster://redis.invalid," + addr:          true,
		"rediss+sentinel://redis.invalid," + addr + "/m":  true,
		"rediss+cluster://localhost?skip_verify=true":     true,
		"rediss://redis.invalid":                          false, // the control
		"rediss://" + addr:                                true,
		"rediss+cluster://localhost?pool_size=1&db=0#top": true,
	} {
		a, err := parse(text)
		require.NoError(t, err)
		a.options.TLSConfig.RootCAs = authority
		c, err := a.options.Dialer(t.Context(), "tcp", addr)
		require.NoError(t, err)
		_, err = c.Write([]byte("PING"))
		assert.Equal(t, trusted, err == nil, "%s: %v", text, err)
		assert.NoError(t, c.Close())
	}
}

// The Sentinels may have a user and a password, which are not those of Redis.
func TestSentinelPassword(t *testing.T) {
	slow.Test(t)
	sentinel := redistest.StartSentinel(t)
	sentinel.Do("acl", "setuser", "weir", "on", ">secret", "+@all", "&*")
	sentinel.Do("acl", "setuser", "default", "off")
	url := "redis+sentinel://" + sentinel.Addr + "/" + redistest.MasterName
	for _, row := range []struct {
		url, password string
		want          redislimit.Class
	}{
		{url, "", redislimit.Misconfigured},
		{url + "?sentinel_username=weir", "wrong", redislimit.Misconfigured},
		{url + "?sentinel_username=weir", "secret", redislimit.None},
	} {
		s, err := Open(Config{URL: row.url, SentinelPassword: row.password},
			slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		_, err = s.FixedWindow().Run(t.Context(),
			&weir.Request{Key: "a", Limit: 9, Duration: time.Hour})
		assert.Equal(t, row.want, redislimit.Classify(err), "%v", err)
		assert.NoError(t, s.Close())
	}
}
