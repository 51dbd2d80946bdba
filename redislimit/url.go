package redislimit

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

// ParseURL returns settings for redis.NewClient with which every promise of this package holds, as
// [Options] does, for a server given by a URL:
//
//	redis://[[user]:password@]host[:port][/database]
//	rediss://[[user]:password@]host[:port][/database]   over TLS
//	unix://[[user]:password@]/path[?db=database]
//
// Parameters such as pool_size are as in redis.ParseURL; retries and timeouts are not taken from
// the URL. Over TLS the certificate must be for the host and of an authority that the system
// trusts, unless the URL ends in ?skip_verify=true, which accepts any, also an attacker's
// between. It fails if url is none of these. The error does not quote url, which may hold a
// password.
func ParseURL(url string) (*redis.Options, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("redislimit: want redis://[user:password@]host[:port][/database], " +
			"rediss:// or unix://")
	}
	secure(o)
	return o, nil
}
