module github.com/weirgo/weir/adapters/xrate

go 1.25.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/weirgo/weir v0.1.0
)

require (
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
