package rpclimit

import "net/http"

// Code is the status of a call: the codes of gRPC, which Connect has too.
type Code uint32

// The codes that a Guard answers with.
const (
	OK                Code = 0
	Canceled          Code = 1
	InvalidArgument   Code = 3
	DeadlineExceeded  Code = 4
	PermissionDenied  Code = 7
	ResourceExhausted Code = 8
	Unavailable       Code = 14
)

// statuses are the HTTP statuses of the codes, as the comments of google/rpc/code.proto map them.
var statuses = [...]int{
	0:  http.StatusOK,
	1:  499, // Canceled: no registered status; nginx uses it for a client that closed the connection
	2:  http.StatusInternalServerError,
	3:  http.StatusBadRequest,
	4:  http.StatusGatewayTimeout,
	5:  http.StatusNotFound,
	6:  http.StatusConflict,
	7:  http.StatusForbidden,
	8:  http.StatusTooManyRequests,
	9:  http.StatusBadRequest,
	10: http.StatusConflict,
	11: http.StatusBadRequest,
	12: http.StatusNotImplemented,
	13: http.StatusInternalServerError,
	14: http.StatusServiceUnavailable,
	15: http.StatusInternalServerError,
	16: http.StatusUnauthorized,
}

// HTTPStatus returns the HTTP status of a code, as google.rpc.Code maps it: 401 for
// Unauthenticated, 429 for ResourceExhausted. It is 500 for an undefined code.
func (c Code) HTTPStatus() int {
	if int(c) < len(statuses) {
		return statuses[c]
	}
	return http.StatusInternalServerError
}
