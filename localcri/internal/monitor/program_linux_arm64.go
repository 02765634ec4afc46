package monitor

import _ "embed"

//go:embed program/arm64.gz
var program string
