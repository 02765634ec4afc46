package kubeletconfig

import (
	"fmt"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/gc"
	"github.com/nodewright/nodewright/gc/logrotate"
)

// ImageGC returns the policy of image garbage collection.
func (c *Config) ImageGC() gc.ImagePolicy {
	return gc.ImagePolicy{
		High: int(*c.ImageGCHighThresholdPercent), Low: int(*c.ImageGCLowThresholdPercent),
		MinAge: c.ImageMinimumGCAge.Duration, MaxAge: c.ImageMaximumGCAge.Duration,
	}
}

// LogRotation returns the limits and the interval of log rotation. ok is false if logs are not
// rotated (containerLogMaxSize is negative).
func (c *Config) LogRotation() (cfg logrotate.Config, ok bool) {
	size, err := Bytes(c.ContainerLogMaxSize)
	return logrotate.Config{
		MaxSize: size, MaxFiles: int(*c.ContainerLogMaxFiles),
		Workers: int(*c.ContainerLogMaxWorkers), Longest: c.ContainerLogMonitorInterval.Duration,
	}, err == nil && size > 0
}

// leastLogInterval is the kubelet's minimum for containerLogMonitorInterval.
const leastLogInterval = 3 * time.Second

func validateGC(c *v1beta1.KubeletConfiguration, bad reporter) {
	high, low := *c.ImageGCHighThresholdPercent, *c.ImageGCLowThresholdPercent
	highOK := high >= 0 && high <= 100
	if !highOK {
		bad("imageGCHighThresholdPercent", high, "0 to 100")
	}
	switch {
	case low < 0 || low > 100:
		bad("imageGCLowThresholdPercent", low, "0 to 100")
	case highOK && low >= high:
		bad("imageGCLowThresholdPercent", low, fmt.Sprintf("less than imageGCHighThresholdPercent, which is %d", high))
	}
	minAge, maxAge := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	if minAge < 0 {
		bad("imageMinimumGCAge", minAge.String(), "a duration of 0 or more")
	}
	switch {
	case maxAge < 0:
		bad("imageMaximumGCAge", maxAge.String(), "a duration of 0 (no limit) or more")
	case maxAge > 0 && maxAge <= minAge:
		bad("imageMaximumGCAge", maxAge.String(), fmt.Sprintf("0 (no limit), or more than imageMinimumGCAge, which is %v", minAge))
	}
	validateLogs(c, bad)
}

func validateLogs(c *v1beta1.KubeletConfiguration, bad reporter) {
	if n, err := Bytes(c.ContainerLogMaxSize); err != nil || n == 0 {
		bad("containerLogMaxSize", c.ContainerLogMaxSize, "a quantity of bytes such as 10Mi, or a negative one to rotate no logs")
	}
	if n := *c.ContainerLogMaxFiles; n < 2 {
		bad("containerLogMaxFiles", n, "2 or more")
	}
	if n := *c.ContainerLogMaxWorkers; n < 1 {
		bad("containerLogMaxWorkers", n, "1 or more")
	}
	if d := c.ContainerLogMonitorInterval.Duration; d < leastLogInterval {
		bad("containerLogMonitorInterval", d.String(), fmt.Sprintf("a duration of %v or more", leastLogInterval))
	}
}
