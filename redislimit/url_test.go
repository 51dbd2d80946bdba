package redislimit_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/redislimit"
)

// ParseURL applies the settings of a URL, and New accepts the result.
func TestParseURL(t *testing.T) {
	o, err := redislimit.ParseURL(
		"rediss://user:secret@192.0.2.1:6380/3?pool_size=7&max_retries=5&read_timeout=9s")
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1:6380", o.Addr)
	assert.Equal(t, "user", o.Username)
	assert.Equal(t, "secret", o.Password)
	assert.Equal(t, 3, o.DB)
	assert.Equal(t, 7, o.PoolSize)
	assert.NotNil(t, o.TLSConfig)
	client := redis.NewClient(o)
	defer client.Close()
	_, err = redislimit.New(client, redislimit.Config{})
	assert.NoError(t, err)
}

func TestParseURLDoesNotQuoteThePassword(t *testing.T) {
	_, err := redislimit.ParseURL("http://user:secret@192.0.2.1")
	require.ErrorContains(t, err, "want redis://")
	assert.NotContains(t, err.Error(), "secret")
}
