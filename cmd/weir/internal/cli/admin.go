package cli

// Caller is the state of a descriptor's limit, as a server answers with it at its admin address.
type Caller struct {
	Code         string `json:"code"`
	Reason       string `json:"reason"`
	Rule         string `json:"rule,omitempty"`
	Limit        string `json:"limit,omitempty"`
	Remaining    uint64 `json:"remaining"`
	ResetSeconds int64  `json:"resetSeconds"`
}

// Progress is a line of the answer to a reset of several descriptors. The last one is Done, or has
// an Error.
type Progress struct {
	Seen  int    `json:"seen"`
	Reset int    `json:"reset"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}
