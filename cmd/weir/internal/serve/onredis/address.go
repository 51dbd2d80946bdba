package onredis

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/redislimit"
)

// address is what a URL says of Redis.
type address struct {
	// options are those of the server; behind Sentinels, of each one that is the master; of a Cluster,
	// of each node.
	options *redis.Options

	nodes        []string // of the Cluster, or the Sentinels
	cluster      bool
	master       string // the name that the Sentinels have for it; empty: there are none
	sentinelUser string
}

// The ports of a URL that names none.
const (
	serverPort   = "6379"
	sentinelPort = "26379"
)

// wrong returns an error of the flag redis. Its text must not have what may be a password: quote
// nothing that may stand before an @, and no port, which is one if the @ was forgotten.
func wrong(format string, args ...any) error { return cli.Wrong("redis", format, args...) }

// parse returns the address of a URL, with the settings that redislimit needs.
func parse(text string) (*address, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	tls, kind, _ := strings.Cut(scheme, "+")
	switch {
	case scheme == "unix":
		o, err := redislimit.ParseURL(text)
		if err != nil {
			return nil, wrong("must be unix:///path[?db=database]")
		}
		return &address{options: o}, nil
	case tls != "redis" && tls != "rediss", kind != "" && kind != "sentinel" && kind != "cluster":
		return nil, wrong("must be redis://, redis+sentinel:// or redis+cluster://, with TLS " +
			"rediss://, " +
			"rediss+sentinel:// or rediss+cluster://, or unix://")
	}
	end := strings.IndexAny(rest+"/", "/?#")
	authority, rest := rest[:end], rest[end:]
	if strings.Contains(rest, "@") {
		return nil, wrong("has a /, ? or # before an @: in a user or password write them as %%2F, %%3F " +
			"and %%23")
	}
	at := strings.LastIndex(authority, "@") + 1 // 0: there is no user
	user, hosts := authority[:at], authority[at:]
	path, query, _ := strings.Cut(rest, "?")
	a := &address{cluster: kind == "cluster"}
	var err error
	switch kind {
	case "sentinel":
		path, query, err = a.sentinel(hosts, path, query)
	case "cluster":
		err = a.ofCluster(hosts, path)
	default:
		err = single(hosts)
	}
	if err != nil {
		return nil, err
	}
	if a.nodes != nil {
		hosts = a.nodes[0]
	}
	if a.options, err = options(tls, user, hosts+path+"?"+query); err != nil {
		return nil, err
	}
	if a.cluster && a.options.DB != 0 {
		return nil, wrong("has the database %d: a Cluster has none", a.options.DB)
	}
	if a.nodes != nil && a.options.TLSConfig != nil {
		a.options.TLSConfig.ServerName = "" // that of the node that is dialled
	}
	return a, nil
}

// single fails unless hosts is one, or none, which is localhost.
func single(hosts string) error {
	if strings.Contains(hosts, ",") {
		return wrong("names several hosts: write redis+sentinel://HOST,HOST/MASTER or " +
			"redis+cluster://HOST,HOST")
	}
	if hosts == "" || hosts[0] == ':' {
		hosts = "localhost" + hosts
	}
	_, err := nodes(hosts, serverPort)
	return err
}

// ofCluster sets the nodes.
func (a *address) ofCluster(hosts, path string) (err error) {
	if strings.Trim(path, "/") != "" {
		return wrong("has the path %q: a Cluster has no databases", path)
	}
	a.nodes, err = nodes(hosts, serverPort)
	return err
}

// sentinel sets the Sentinels, the name of the master in the path, and their user's in the query.
// It returns path and query as they are for one server.
func (a *address) sentinel(hosts, path, query string) (string, string, error) {
	var err error
	if a.nodes, err = nodes(hosts, sentinelPort); err != nil {
		return "", "", err
	}
	name, database, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if a.master, err = url.PathUnescape(name); err != nil || a.master == "" {
		return "", "", wrong("names no master: end it with the name that the Sentinels have for it, " +
			"such as /mymaster")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", "", wrong("has a parameter that is no NAME=VALUE")
	}
	a.sentinelUser = values.Get("sentinel_username")
	values.Del("sentinel_username")
	return "/" + database, values.Encode(), nil
}

// nodes returns the hosts of a list, each with a port.
func nodes(list, port string) ([]string, error) {
	all := strings.Split(list, ",")
	for i, text := range all {
		text = strings.TrimSpace(text)
		host, its, err := net.SplitHostPort(text)
		if err != nil { // there is none
			host, its, err = net.SplitHostPort(text + ":" + port)
		}
		if err != nil || host == "" {
			return nil, wrong("needs HOST or HOST:PORT as its host number %d, an IPv6 address in brackets",
				i+1)
		}
		if n, err := strconv.ParseUint(its, 10, 16); err != nil || n == 0 {
			return nil, wrong("needs a port from 1 to 65535 after the host %q", host)
		}
		all[i] = net.JoinHostPort(host, its)
	}
	return all, nil
}

// options returns those of one server. rest is what follows the user.
func options(scheme, user, rest string) (*redis.Options, error) {
	o, err := redislimit.ParseURL(scheme + "://" + rest)
	if err != nil {
		_, err = redis.ParseURL(scheme + "://" + rest)
		if parsing := (*url.Error)(nil); errors.As(err, &parsing) {
			err = parsing.Err // without the URL
		}
		return nil, wrong("is wrong: %s", strings.TrimPrefix(err.Error(), "redis: "))
	}
	u, err := url.Parse(scheme + "://" + user + "host")
	if err != nil {
		return nil, wrong("has a user or password with a character that must be written as %%XX")
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	return o, nil
}

// client returns a client, which connects when it is used.
func (a *address) client(sentinelPassword string) redis.UniversalClient {
	if a.nodes == nil {
		return redis.NewClient(a.options)
	}
	o := a.options
	all := &redis.UniversalOptions{
		Addrs: a.nodes, ClientName: o.ClientName, DB: o.DB, Dialer: o.Dialer, Protocol: o.Protocol,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		SentinelUsername: a.sentinelUser, SentinelPassword: sentinelPassword, MasterName: a.master,
		MaxRetries: o.MaxRetries, DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		DialerRetryTimeout: o.DialerRetryTimeout, ReadTimeout: o.ReadTimeout,
		WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		PoolFIFO: o.PoolFIFO, PoolSize: o.PoolSize, MaxConcurrentDials: o.MaxConcurrentDials,
		PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime,
		ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		PipelinePoolSize: o.PipelinePoolSize, PipelineReadBufferSize: o.PipelineReadBufferSize,
		PipelineWriteBufferSize: o.PipelineWriteBufferSize, IdentitySuffix: o.IdentitySuffix,
		DisableIdentity: o.DisableIdentity, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}
	if a.cluster {
		return redis.NewClusterClient(all.Cluster())
	}
	return redis.NewFailoverClient(all.Failover())
}
