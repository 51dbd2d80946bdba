package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/internal/testkit/docblocks"
)

// showsWhatPrints runs the tool, and compares what it prints with a block of a page.
func showsWhatPrints(t *testing.T, command, block string) {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, cli.ExitOK, run(strings.Fields(command), strings.NewReader(""), &out, &errs), errs.String())
	assert.True(t, docblocks.Shows(block, out.String()), "the page has\n%s\nbut %s prints\n%s", block, command, &out)
}
