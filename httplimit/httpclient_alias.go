package httplimit

import "github.com/weirgo/weir/httpclient"

// Transport is [httpclient.Transport].
type Transport = httpclient.Transport

// LimitError is [httpclient.LimitError].
type LimitError = httpclient.LimitError
