package proxy

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/redislimit"
)

func TestCalendarLimit(t *testing.T) {
	r, err := rule.Parse("100/month:17@Europe/Berlin", rule.Defaults{Strategy: rule.Default})
	require.NoError(t, err)
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	local := &strategies{limiter: limiter}
	p, err := local.policy(Limit{Rule: r})
	require.NoError(t, err)
	res, err := p.Strategy.Run(t.Context(), &weir.Request{Key: "a", Limit: p.Limit})
	require.NoError(t, err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	ends := res.ExpiresAt.Round(0).In(berlin)
	assert.Equal(t, 17, ends.Day())
	assert.Equal(t, "00:00:00", ends.Format(time.TimeOnly))
	assert.Equal(t, "calendar", weir.NameOf(p.Strategy))

	client := redis.NewClient(redislimit.Options("127.0.0.1:1"))
	defer client.Close()
	store, err := redislimit.New(client, redislimit.Config{})
	require.NoError(t, err)
	remote, err := (&shared{store: store}).primary(Limit{Rule: r})
	require.NoError(t, err)
	assert.Equal(t, "calendar", weir.NameOf(remote))
}
