# Runs as root inside the new image, after its packages are installed.

groupadd --gid 1000 sandbox
useradd --uid 1000 --gid 1000 --no-create-home --home-dir /home/sandbox --shell /bin/bash sandbox

# What mmdebstrap took over from the machine that builds.
: > /etc/hostname
: > /etc/resolv.conf
chmod 0644 /etc/hostname /etc/resolv.conf
printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' > /etc/hosts

# One more reason for two builds of the same packages to differ.
rm -rf /var/log/* /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old \
  /var/lib/dpkg/*-old /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- \
  /etc/subuid- /etc/subgid- /var/lib/systemd
mkdir -p /var/log/apt

# The host's certificate authorities are mounted here; until then, and on hosts
# without any, the image's own. wget and apt read no environment variable.
mkdir -p /etc/cubby
cp /etc/ssl/certs/ca-certificates.crt /etc/cubby/ca-certificates.crt
echo 'ca_certificate = /etc/cubby/ca-certificates.crt' >> /etc/wgetrc
