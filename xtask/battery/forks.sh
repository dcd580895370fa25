# Many forks: subshells, pipelines, background jobs and command substitution, with a result that never varies.
set -eu
work=$1
declare -A count
sum=0
for i in $(seq 1 150); do
    word=$(printf '%s-%d' "item" $((i * 7919 % 1000)))
    half=$(echo "$word" | cut -d- -f2 | sed 's/^/1/')
    sum=$((sum + half))
    count[$((i % 13))]=$((${count[$((i % 13))]:-0} + ${#word}))
done
echo "sum $sum"
for k in "${!count[@]}"; do echo "$k ${count[$k]}"; done | sort -n
for i in 1 2 3 4 5 6 7 8; do
    (
        text=
        for j in $(seq 1 300); do text+="$((i * j)),"; done
        echo "${text//1/one}" > "$work/part$i"
    ) &
done
wait
cat "$work"/part* | tr ',' '\n' | sort | uniq -c | sort -k1,1nr -k2,2 | head -40
deep() { if [ "$1" -gt 0 ]; then echo "$1 $(deep $(($1 - 1)))"; fi; }
deep 40
mapfile -t lines < <(seq 1 5000)
echo "${#lines[@]} ${lines[*]: -3}"
big=$(head -c 300000 /dev/zero | tr '\0' 'x')
echo "${#big}"
( exit 7 ) || echo "subshell said $?"
