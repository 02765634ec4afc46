package kubeapi

import (
	"crypto/x509"
	"time"
)

// rotationDeadline returns the time at which to replace a certificate: after 70 % of
// its lifetime if random is 0, after 90 % if random is 1.
func rotationDeadline(c *x509.Certificate, random float64) time.Time {
	return c.NotBefore.Add(certificatePart(c, random))
}

// certificatePart returns the part of a certificate's lifetime, as a duration, after which the
// certificate is replaced.
func certificatePart(c *x509.Certificate, random float64) time.Duration {
	return partOf(c.NotAfter.Sub(c.NotBefore), random)
}

func partOf(life time.Duration, random float64) time.Duration {
	return time.Duration(float64(life) * (0.7 + 0.2*random))
}

// plausible is the accepted difference between the start of a new certificate's validity and this
// machine's time: signers backdate certificates by some minutes.
const plausible = 15 * time.Minute

// rotateAt returns the time at which to replace a certificate that this process received at the
// time issued. If issued is zero, that time is not known. The result is the rotationDeadline,
// unless that is not after issued, or the validity begins more than plausible after issued. In
// these cases the clocks of the signer and this machine differ, and the validity counts from
// issued: a clock that is hours ahead must not cause repeated replacements. If a short validity
// was only backdated, its remaining part counts from issued.
func rotateAt(c *x509.Certificate, random float64, issued time.Time) time.Time {
	at := rotationDeadline(c, random)
	if issued.IsZero() || at.After(issued) && c.NotBefore.Before(issued.Add(plausible)) {
		return at
	}
	if c.NotAfter.After(issued) && c.NotBefore.After(issued.Add(-plausible)) && c.NotBefore.Before(issued) {
		return issued.Add(partOf(c.NotAfter.Sub(issued), random))
	}
	return issued.Add(certificatePart(c, random))
}

// closeAt returns the time at which connections with a replaced certificate are closed:
// shortly before it expires, since servers refuse it from then on. Closing them earlier
// would end all watches without need.
func closeAt(c *x509.Certificate, now time.Time) time.Time {
	margin := max(c.NotAfter.Sub(c.NotBefore)/20, time.Minute)
	if at := c.NotAfter.Add(-margin); at.After(now) {
		return at
	}
	return now
}
