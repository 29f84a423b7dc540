package telemetry

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Pool is how many sandboxes of a kind are kept ready, and how many shall be.
type Pool struct {
	Image, Isolation, Kernel string
	Ready, Wanted            int
}

// Pools makes metrics of what is kept ready for creates, and of the creates that
// it served; both are asked at every scrape. The label pool numbers the kinds.
func (m *Metrics) Pools(pools func() []Pool, claimed func() int64) {
	labels := []string{"pool", "image", "isolation", "kernel"}
	m.registry.MustRegister(
		&poolCollector{
			ready:  prometheus.NewDesc("cubby_pool_ready", "Sandboxes that are kept ready for creates.", labels, nil),
			wanted: prometheus.NewDesc("cubby_pool_wanted", "Sandboxes that shall be kept ready.", labels, nil),
			pools:  pools,
		},
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "cubby_pool_claims_total", Help: "Creates that got a sandbox that was kept ready.",
		}, func() float64 { return float64(claimed()) }),
	)
}

type poolCollector struct {
	ready, wanted *prometheus.Desc
	pools         func() []Pool
}

func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.ready
	ch <- c.wanted
}

func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	for i, p := range c.pools() {
		labels := []string{strconv.Itoa(i + 1), p.Image, p.Isolation, p.Kernel}
		ch <- prometheus.MustNewConstMetric(c.ready, prometheus.GaugeValue, float64(p.Ready), labels...)
		ch <- prometheus.MustNewConstMetric(c.wanted, prometheus.GaugeValue, float64(p.Wanted), labels...)
	}
}

var poolLine = regexp.MustCompile(`^cubby_pool_(ready|wanted)\{image="(.*)",isolation="(.*)",kernel="(.*)",pool="([0-9]+)"\} ([0-9]+)$`)

// ReadPools reads what [Metrics.Pools] makes out of metrics in the text format.
func ReadPools(text string) []Pool {
	var all []Pool
	for line := range strings.Lines(text) {
		f := poolLine.FindStringSubmatch(strings.TrimSpace(line))
		if f == nil {
			continue
		}
		number, err := strconv.Atoi(f[5])
		n, nErr := strconv.Atoi(f[6])
		if err != nil || nErr != nil || number < 1 || number > maxPools {
			continue
		}
		for len(all) < number {
			all = append(all, Pool{})
		}
		p := &all[number-1]
		p.Image, p.Isolation, p.Kernel = f[2], f[3], f[4]
		if f[1] == "ready" {
			p.Ready = n
		} else {
			p.Wanted = n
		}
	}
	return all
}

// maxPools is more than a daemon has kinds.
const maxPools = 1000
