//go:build otlp

// With the build tag otlp the agent sends its record to the OpenTelemetry collector that is set in the
// configuration field tracing.

package main

import (
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/record/otlp"
)

// moreFields are the configuration fields that have an effect only with the build tag otlp.
var moreFields = []string{"tracing"}

// exporter returns the maker of the part that sends the record to the collector.
func exporter() []nodeagent.Maker {
	return []nodeagent.Maker{func(b *nodeagent.Builder) (part.Part, error) {
		t := b.Config.Tracing
		if t == nil {
			return nil, nil
		}
		// As in the kubelet, there are no traces unless the sampling rate is set.
		c := otlp.Config{SamplesPerMillion: -1, Node: b.Node.Name, Version: versionString(), Log: b.Log.Named("otlp"), Metrics: b.Metrics}
		if t.Endpoint != nil {
			c.Endpoint = *t.Endpoint
		}
		if t.SamplingRatePerMillion != nil && *t.SamplingRatePerMillion > 0 {
			c.SamplesPerMillion = int(*t.SamplingRatePerMillion)
		}
		return otlp.New(c)
	}}
}
