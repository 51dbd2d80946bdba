package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/internal/testkit/ops"
)

func TestCalendarLimit(t *testing.T) {
	r, err := rule.Parse("100/month:17@Europe/Berlin", rule.Defaults{Strategy: rule.Default})
	require.NoError(t, err)
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	p, err := stores{limiter: limiter}.policy(r)
	require.NoError(t, err)
	res, err := p.Strategy.Run(t.Context(), &weir.Request{Key: "a", Limit: p.Limit})
	require.NoError(t, err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	ends := res.ExpiresAt.Round(0).In(berlin)
	assert.Equal(t, 17, ends.Day())
	assert.Equal(t, "00:00:00", ends.Format(time.TimeOnly))
	assert.Equal(t, "calendar", ops.Name(p.Strategy))

	store, err := onredis.Open(onredis.Config{URL: "redis://127.0.0.1:1"}, nil)
	require.NoError(t, err)
	defer store.Close()
	remote, err := rule.On(r, store)
	require.NoError(t, err)
	assert.Equal(t, "calendar", ops.Name(remote))
}
