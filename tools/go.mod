module github.com/weirgo/weir/tools // not published

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
	golang.org/x/mod v0.41.0
	golang.org/x/tools v0.49.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.23.0 // indirect
)

replace github.com/weirgo/weir => ..
